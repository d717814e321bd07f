"""Fixtures that several test files share."""

from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, or a skip where `make test TORCH=0` left it out."""
    return pytest.importorskip("torch")
