"""Hunts for a race: the same program with what orders it left out, and with it."""

from device_work import StandIn
from row import ProvesNothing

# In clock ticks: half a millisecond, and two seconds.
SHORTEST, LONGEST = 1 << 20, 1 << 32
ROUNDS = 20


def hunt(attempt):
    """Says what two kinds of runs of `attempt` gave, or raises.

    `attempt(ticks, ordered)` runs the program once with a kernel of `ticks` in the way and returns
    whether it saw wrong values. Unordered it must, if only the kernel is long enough.
    """
    stand_in = StandIn()
    ticks = SHORTEST
    while not _is_wrong(attempt, stand_in, ticks, ordered=False):
        ticks *= 4
        if ticks > LONGEST:
            raise ProvesNothing("right even without, after a kernel of two seconds")
    rounds = 2 if stand_in.is_there else ROUNDS
    for done in range(rounds):
        if _is_wrong(attempt, stand_in, 2 * ticks, ordered=True):
            raise AssertionError(f"wrong values in round {done + 1} of {rounds}")
    if stand_in.is_there:
        return f"without it a race is reported; with it none in {rounds} rounds"
    return (
        f"without it wrong values, a kernel of {ticks / 2e6:.1f} ms in the way; "
        f"with it and twice as long a kernel right in {rounds} of {rounds} rounds"
    )


def _is_wrong(attempt, stand_in, ticks, ordered):
    # The stand-in decides by the order of calls, whatever the values came out as.
    before = len(stand_in.reports())
    wrong = attempt(ticks, ordered)
    if not stand_in.is_there:
        return wrong
    reports = stand_in.reports()[before:]
    if ordered and reports:
        raise AssertionError(reports[0])
    return bool(reports) or (ordered and wrong)
