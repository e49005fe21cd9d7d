"""Steps by a method that the loop calls anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def after_each(owner: Any, method: str, is_step: Callable[[], bool], then: Callable[[], None]) -> Iterator[None]:
    """While inside, call ``then`` after each call of ``owner.method`` for which ``is_step`` held before it."""
    original = getattr(owner, method)

    def call(*args: Any, **kwargs: Any) -> Any:
        counts = is_step()
        result = original(*args, **kwargs)
        if counts:
            then()
        return result

    had_its_own = method in vars(owner)
    setattr(owner, method, call)
    try:
        yield
    finally:
        if vars(owner).get(method) is call:
            if had_its_own:
                setattr(owner, method, original)
            else:
                delattr(owner, method)
