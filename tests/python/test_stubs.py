"""The stubs name what the module has, with the same signatures, and every name has a text."""

import ast
import importlib
import inspect
import operator
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import hurray

PACKAGE = Path(hurray.__file__).parent

# Python makes these of a class that compares, hashes or prints itself; `object` has them in its
# own stub.
INHERITED = set(dir(object)) | {"__module__"}


def stub(name: str) -> dict[str, ast.AST]:
    """The public definitions of a stub file, by name."""
    tree = ast.parse((PACKAGE / f"{name}.pyi").read_text())
    return dict(definitions(tree.body))


def definitions(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                if not name.startswith("_") or name.startswith("__"):
                    yield name, node
            case ast.AnnAssign(target=ast.Name(id=name)):
                if not name.startswith("_") or name.startswith("__dlpack"):
                    yield name, node
            case ast.ImportFrom(module="hurray", names=names):
                # `from a import b as b` gives b out.
                yield from ((alias.name, node) for alias in names if alias.asname == alias.name)


def is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)


def is_bound(node: ast.FunctionDef) -> bool:
    """Whether the runtime's signature leaves out the first parameter."""
    return not any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)


def parameters(node: ast.FunctionDef, *, skip_first: bool) -> list[tuple[str, object, object]]:
    """Name, kind and default of each parameter, as `inspect` would give them."""
    kinds = inspect.Parameter
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [inspect.Parameter.empty] * (len(positional) - len(arguments.defaults))
    defaults += [ast.literal_eval(default) for default in arguments.defaults]
    found = [
        (
            a.arg,
            kinds.POSITIONAL_ONLY if a in arguments.posonlyargs else kinds.POSITIONAL_OR_KEYWORD,
            default,
        )
        for a, default in zip(positional, defaults, strict=True)
    ]
    if skip_first:
        found = found[1:]
    if arguments.vararg is not None:
        found.append((arguments.vararg.arg, kinds.VAR_POSITIONAL, kinds.empty))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        value = kinds.empty if default is None else ast.literal_eval(default)
        found.append((argument.arg, kinds.KEYWORD_ONLY, value))
    return found


def signature(function: object) -> list[tuple[str, object, object]]:
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in found if p.name != "self"]


STUB = stub("__init__")
# Every class and function, by the name under `hurray`.
DEFINED = STUB | {f"cuda.{name}": node for name, node in stub("cuda").items()}
CLASSES = [name for name, node in DEFINED.items() if isinstance(node, ast.ClassDef)]
FUNCTIONS = [name for name, node in DEFINED.items() if isinstance(node, ast.FunctionDef)]


def defined(name: str) -> object:
    return operator.attrgetter(name)(hurray)


def test_the_stub_has_every_public_name_and_no_other() -> None:
    assert sorted(STUB) == sorted(hurray.__all__)
    assert {name for name in vars(hurray) if not name.startswith("_")} == set(hurray.__all__)


@pytest.mark.parametrize("name", ["cuda", "dtype", "device"])
def test_the_stub_of_a_submodule_has_every_name_and_no_other(name: str) -> None:
    module = importlib.import_module(f"hurray.{name}")
    assert isinstance(module, ModuleType)
    assert module is getattr(hurray, name)
    assert sorted(stub(name)) == sorted(n for n in dir(module) if not n.startswith("_"))
    assert module.__doc__


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    node = DEFINED[name]
    assert isinstance(node, ast.FunctionDef)
    assert parameters(node, skip_first=False) == signature(defined(name))


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name: str) -> None:
    node = DEFINED[name]
    assert isinstance(node, ast.ClassDef)
    class_ = defined(name)
    bases = [ast.unparse(base) for base in node.bases] or ["object"]
    assert bases == [base.__name__ for base in class_.__bases__]
    final = any(isinstance(d, ast.Name) and d.id == "final" for d in node.decorator_list)
    assert final == (not issubclass(class_, Exception) and not is_subclassable(class_))

    members = dict(definitions(node.body))
    constructor = members.pop("__new__", None)
    if constructor is None:
        assert issubclass(class_, Exception) or not is_constructible(class_)
    else:
        assert isinstance(constructor, ast.FunctionDef)
        assert parameters(constructor, skip_first=True) == signature(class_)

    if issubclass(class_, Exception):
        return
    # Comparing slots come as a whole set, of which the stub of `object` has the ones that work.
    own = {member for member in vars(class_) if member not in INHERITED}
    assert set(members) == own
    for member, definition in members.items():
        if isinstance(definition, ast.AnnAssign):
            assert not callable(inspect.getattr_static(class_, member)), member
            continue
        assert isinstance(definition, ast.FunctionDef)
        value = inspect.getattr_static(class_, member)
        assert is_property(definition) == inspect.isgetsetdescriptor(value), member
        if not is_property(definition):
            expected = parameters(definition, skip_first=is_bound(definition))
            assert expected == signature(getattr(class_, member)), member


def is_subclassable(class_: type) -> bool:
    try:
        type("Derived", (class_,), {})
    except TypeError:
        return False
    return True


def is_constructible(class_: type) -> bool:
    try:
        class_()
    except TypeError as error:
        return "cannot create" not in str(error)
    return True


@pytest.mark.parametrize("file", ["__init__", "cuda", "dtype", "device"])
def test_everything_in_a_stub_is_annotated(file: str) -> None:
    tree = ast.parse((PACKAGE / f"{file}.pyi").read_text())
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        assert node.returns is not None, node.name
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if node.args.vararg is not None:
            arguments.append(node.args.vararg)
        for argument in arguments:
            assert argument.annotation is not None or argument.arg in ("self", "cls"), node.name


@pytest.mark.parametrize("name", [*CLASSES, *FUNCTIONS])
def test_every_name_has_a_text(name: str) -> None:
    value = defined(name)
    assert inspect.getdoc(value), name
    if isinstance(value, type) and not issubclass(value, Exception):
        for member in vars(value):
            if not member.startswith("_"):
                assert inspect.getdoc(inspect.getattr_static(value, member)), f"{name}.{member}"


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
