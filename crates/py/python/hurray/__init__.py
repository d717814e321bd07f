"""Zero-copy interchange of tensors that have several buffers.

A `Tensor` is a descriptor and the buffers that it describes. `from_numpy`, `from_dlpack`,
`from_torch` and `from_hurray` make one over another library's memory; `__hurray__` hands all of
its buffers to a consumer in one capsule, `__dlpack__` and `__array__` one plain buffer.
"""

import os as _os
import sys as _sys


def _installed_pyhurray() -> str | None:
    """The metadata folder of an installed pyhurray, whose module is called `hurray` as well."""
    # importlib.metadata knows too, but takes some 40 ms to import, longer than all of hurray.
    for folder in _sys.path:
        # Anybody may put anything on the path; the import system passes over what is no folder.
        if not isinstance(folder, str):
            continue
        try:
            names = _os.listdir(folder or _os.curdir)
        except (OSError, ValueError):
            continue
        for name in names:
            if name.startswith("pyhurray-") and name.endswith((".dist-info", ".egg-info")):
                return _os.path.join(folder, name)
    return None


if (_found := _installed_pyhurray()) is not None:
    # Whichever was installed last has overwritten a file of the other, and removing pyhurray takes
    # the file they share along.
    raise ImportError(
        f"pyhurray ({_found}) and hurray-runtime are both installed, and both are the module "
        "`hurray`: remove pyhurray with `pip uninstall pyhurray`, then restore what that takes "
        "along with `pip install --force-reinstall --no-deps hurray-runtime`"
    )

from hurray._hurray import *  # noqa: E402, F403 - the native module lists its names in `__all__`
from hurray._hurray import __all__ as __all__  # noqa: E402
from hurray._hurray import __version__ as __version__  # noqa: E402
