"""The exceptions and their places among Python's."""

import builtins

import pytest

import hurray

BASES = {
    "UnsupportedError": NotImplementedError,
    "InvalidDescriptorError": ValueError,
    "BufferError": ValueError,
    "CopyRequiredError": ValueError,
    "InternalError": RuntimeError,
    "FileError": OSError,
    "StreamError": OSError,
}


@pytest.mark.parametrize(("name", "base"), BASES.items())
def test_base_and_name(name: str, base: type[Exception]) -> None:
    error = getattr(hurray, name)
    assert error.__bases__ == (base,)
    assert (error.__module__, error.__qualname__) == ("hurray", name)
    assert error.__doc__


def test_the_buffer_error_is_not_the_built_in() -> None:
    assert not issubclass(hurray.BufferError, builtins.BufferError)
    assert hurray.BufferError is not builtins.BufferError


def test_text_names_the_numbers() -> None:
    with pytest.raises(hurray.InvalidDescriptorError, match="63"):
        hurray.NF4(1, 63, 1)
    with pytest.raises(hurray.InvalidDescriptorError, match="0 bytes"):
        hurray.Descriptor.decode(b"")


@pytest.mark.parametrize("number", [-1, 2**64, 2**100])
def test_numbers_that_nothing_has(number, tmp_path):
    with pytest.raises(ValueError, match="alignment"):
        hurray.empty([1], alignment=number)
    with pytest.raises(ValueError, match="byte_offset"):
        hurray.Tensor(bytes(64), hurray.uint8, [1], byte_offset=number)
    path = tmp_path / "file"
    hurray.save(path, {"t": hurray.empty([4])})
    with hurray.open(path) as file:
        # As slices of sequences do.
        for start, stop in ((number, None), (None, number), (-number, number), (number, -number)):
            (rows,) = file.slice("t", start, stop).shape
            assert rows == len(range(4)[start:stop])
    with pytest.raises(ValueError, match="event"):
        hurray.cuda.Event(number)
