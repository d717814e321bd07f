"""Zero-copy interchange of tensors that have several buffers."""

from hurray._hurray import *  # noqa: F403 - the native module's `__all__` is the list of names
from hurray._hurray import __version__ as __version__
