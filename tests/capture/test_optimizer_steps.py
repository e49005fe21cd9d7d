"""Steps of a loop by its optimizer, on stand-ins for torch's and DeepSpeed's classes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from commprof.capture.optimizer_steps import OptimizerSteps, wrap_engine, wrap_optimizers


class Player:
    """Something with a step; ``inside`` runs in the middle of it."""

    def __init__(self, inside: Callable[[], Any] = lambda: None) -> None:
        self.inside = inside


def counter() -> tuple[OptimizerSteps, list[int]]:
    seen: list[int] = []
    return OptimizerSteps(lambda: seen.append(len(seen))), seen


def step(steps: OptimizerSteps, player: Player) -> Any:
    return steps.run(player, player.inside)


def test_each_step_of_the_only_optimizer_is_one() -> None:
    steps, seen = counter()
    only = Player(lambda: "loss")

    results = [step(steps, only) for _ in range(3)]

    assert results == ["loss"] * 3
    assert len(seen) == 3


def test_an_optimizer_inside_another_is_no_step() -> None:
    steps, seen = counter()
    inner = Player()
    sharded = Player(lambda: [step(steps, inner) for _ in range(2)])

    for _ in range(3):
        step(steps, sharded)

    assert len(seen) == 3


def test_of_two_players_the_first_one_counts() -> None:
    steps, seen = counter()
    critic, painter = Player(), Player()

    for _ in range(4):
        for player in (critic, critic, critic, painter):
            step(steps, player)

    assert len(seen) == 12  # the critic steps three times in each round, and it was first


def test_another_leads_when_the_first_is_gone_or_silent() -> None:
    steps, seen = counter()
    first, second = Player(), Player()
    step(steps, first)

    for _ in range(51):
        step(steps, second)
    silent = len(seen)
    del second
    gc.collect()
    step(steps, first)

    assert silent == 2  # 50 steps of the other are still taken for its own business
    assert len(seen) == 3


def test_a_step_that_fails_is_none_and_the_next_one_counts() -> None:
    steps, seen = counter()

    def fail() -> None:
        raise ValueError("nan")

    with pytest.raises(ValueError, match="nan"):
        step(steps, Player(fail))
    step(steps, Player())

    assert len(seen) == 1


class FakeOptimizer:
    """As ``torch.optim.Optimizer``: a subclass's step is wrapped when the first object of it is made."""

    profiled: ClassVar[list[str]] = []

    def __init__(self) -> None:
        kind = type(self)
        if not hasattr(kind.step, "hooked"):
            kind.step = self.profile_hook_step(kind.step)  # type: ignore[method-assign]
            kind.step.hooked = True  # type: ignore[attr-defined]

    @staticmethod
    def profile_hook_step(func: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            FakeOptimizer.profiled.append("begin")
            result = func(*args, **kwargs)
            FakeOptimizer.profiled.append("end")
            return result

        return wrapper

    def step(self, closure: Any = None) -> Any:
        return closure


def test_the_boundary_lies_outside_the_range_of_the_optimizer() -> None:
    pytest.importorskip("torch")
    order: list[str] = FakeOptimizer.profiled
    made: list[int] = []
    wrap_optimizers(FakeOptimizer, OptimizerSteps(lambda: order.append("boundary")), lambda: made.append(1))

    first, second = FakeOptimizer(), FakeOptimizer()
    results = [first.step(3), first.step(closure=4)]

    assert results == [3, 4]
    assert order == ["begin", "end", "boundary"] * 2
    assert made == [1]
    assert second is not first


def test_an_engine_steps_at_the_end_of_an_accumulation() -> None:
    class Engine:
        def __init__(self) -> None:
            self.micro = 0

        def is_gradient_accumulation_boundary(self) -> bool:
            return (self.micro + 1) % 4 == 0

        def step(self) -> int:
            self.micro += 1
            return self.micro

    steps, seen = counter()
    wrap_engine(Engine, "step", steps)
    engine = Engine()

    results = [engine.step() for _ in range(8)]

    assert results == list(range(1, 9))
    assert len(seen) == 2


def test_a_pipeline_s_engine_steps_once_per_batch() -> None:
    class Pipeline:
        def train_batch(self, data: Any) -> Any:
            return data

    steps, seen = counter()
    wrap_engine(Pipeline, "train_batch", steps)

    assert [Pipeline().train_batch(7), Pipeline().train_batch(data=8)] == [7, 8]
    assert len(seen) >= 1
