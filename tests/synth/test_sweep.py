"""Split and exposure of hand-made device work; the definitions of steps, split and exposed time of one collective."""

from __future__ import annotations

from commprof.synth.sweep import COMM, COMPUTE, COPY, Exposure, Window, Work, _walk


def sweep(
    *work: tuple[str, int, int, int], window: tuple[int, int] = (0, 1000), launches: dict[int, int] | None = None
):
    """Walk over ``(kind, stream, start, end)`` events; returns the split and the exposure of each event."""
    events = [
        Work(start, end, kind, stream, n, (launches or {}).get(n, 0), 0, 0)
        for n, (kind, stream, start, end) in enumerate(work)
    ]
    exposure = {w.index: Exposure() for w in events if w.kind == COMM}
    step, whole = Window("step", *window), Window("whole", *window)
    _walk(events, [step], whole, exposure, [])
    assert step.split == whole.split
    return step.split, exposure


def test_the_example_with_one_kernel_and_one_all_reduce() -> None:
    # C083: compute 0-600, all-reduce 500-900 in a step of 1000.
    split, exposure = sweep((COMPUTE, 7, 0, 600), (COMM, 20, 500, 900))

    assert split["compute_ns"] == 600
    assert split["comm_ns"] == 400
    assert split["overlap_ns"] == 100
    assert split["exposed_comm_ns"] == 300
    assert split["idle_ns"] == 100
    assert exposure[1].exposed == exposure[1].sole == exposure[1].touched == 300


def test_two_collectives_share_what_they_expose_together() -> None:
    # C087: all-reduce 0-100, all-gather 50-150, compute 80-120. Exposed 0-80 and 120-150. Until compute resumes
    # at 80 neither ends: 0-50 and half of 50-80 to the first; then the second alone has 120-150.
    split, exposure = sweep((COMM, 20, 0, 100), (COMM, 21, 50, 150), (COMPUTE, 7, 80, 120))

    assert split["exposed_comm_ns"] == 110
    assert (exposure[0].exposed, exposure[1].exposed) == (65, 45)
    assert (exposure[0].sole, exposure[1].sole) == (50, 30)
    assert (exposure[0].touched, exposure[1].touched) == (80, 60)


def test_exposed_time_before_an_instant_inside_the_call() -> None:
    # The first call of the example above has 0-50 alone and half of 50-80: until 60 that is 50 + 5.
    _, exposure = sweep((COMM, 20, 0, 100), (COMM, 21, 50, 150), (COMPUTE, 7, 80, 120))

    assert [exposure[0].until(instant) for instant in (0, 20, 60, 100)] == [0, 20, 55, 65]


def test_only_those_that_end_before_compute_resumes_are_charged() -> None:
    # Compute resumes at 100, where the first ends; the second runs on and was not waited for.
    _, exposure = sweep((COMM, 20, 0, 100), (COMM, 21, 0, 300), (COMPUTE, 7, 100, 300))

    assert (exposure[0].exposed, exposure[1].exposed) == (100, 0)
    assert exposure[1].touched == 100


def test_the_remainder_goes_to_the_first_that_started_then_to_the_lower_stream() -> None:
    # 101 shared by two: 51 and 50.
    _, exposure = sweep((COMM, 21, 0, 101), (COMM, 20, 0, 101))

    assert (exposure[0].exposed, exposure[1].exposed) == (50, 51)


def test_a_copy_hides_nothing_and_is_exposed_only_outside_communication() -> None:
    split, _ = sweep((COPY, 30, 0, 150), (COMM, 20, 0, 100), window=(0, 200))

    assert (split["exposed_comm_ns"], split["exposed_copy_ns"], split["copy_ns"], split["idle_ns"]) == (
        100,
        50,
        150,
        50,
    )


def test_host_bound_until_something_is_launched_that_could_compute() -> None:
    # Exposed 0-100, idle 100-200, compute from 200 on, launched at 150: host-bound 100 exposed and 50 idle.
    split, _ = sweep((COMM, 20, 0, 100), (COMPUTE, 7, 200, 300), window=(0, 300), launches={1: 150})

    assert (split["exposed_host_ns"], split["idle_host_ns"]) == (100, 50)


def test_a_later_kernel_that_was_launched_earlier_counts() -> None:
    # The next kernel is launched at 90, but a later one was enqueued at 40: host-bound only until 40.
    split, _ = sweep((COMPUTE, 7, 100, 150), (COMPUTE, 8, 200, 250), window=(0, 300), launches={0: 90, 1: 40})

    assert split["idle_host_ns"] == 40
