"""A row of the table: one claim, and the program that shows it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

ROWS: dict[str, "Row"] = {}


class Skipped(Exception):
    """This machine can't show it."""


class ProvesNothing(Exception):
    """It ran, and would have ended the same way had the code been wrong."""


@dataclass(frozen=True)
class Row:
    title: str
    # Returns what was seen, as a sentence.
    program: Callable[[], str]
    needs: tuple[str, ...]
    # Whether it needs a GPU, since the stand-in driver runs nobody's kernels but its own.
    gpu: bool
    seconds: int
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.program.__name__

    def run(self, simulator: bool) -> str:
        if self.gpu and simulator:
            raise Skipped("needs a GPU")
        for module in self.needs:
            if find_spec(module) is None:
                raise Skipped(f"{module} is not installed")
        return self.program()


def row(title, *, needs=(), gpu=False, seconds=30, environment=None):
    """Makes a function a row. Rows are run and listed in the order in which they are made."""

    def register(program):
        # A library of device arrays is of no use without a device.
        ROWS[program.__name__] = Row(
            title, program, tuple(needs), gpu or bool(needs), seconds, environment or {}
        )
        return program

    return register
