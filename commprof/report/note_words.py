"""What the codes of notes mean, for the glossary: one entry for every code that the analysis knows."""

from __future__ import annotations

from collections.abc import Mapping

from commprof.report.causes import Word

NOTES: Mapping[str, Word] = {
    "before-bucket-rebuild": Word(
        "before bucket rebuild",
        "DDP orders its buckets anew after the first iteration; a step recorded before that shows others than later "
        "steps have.",
    ),
    "cannot-be-hidden": Word(
        "cannot be hidden",
        "Communication that no setting of overlap would hide: it runs on the stream of the kernels, or takes longer "
        "than all compute beside it.",
    ),
    "capture-incomplete": Word(
        "capture incomplete",
        "The capture of a rank ended early, wrote no trace, or holds far fewer kernels than those of the others.",
    ),
    "captures-apart": Word(
        "captures apart",
        "The ranks were not recorded at the same time, or no collective puts them on one clock: nothing between them "
        "is stated.",
    ),
    "clocks-aligned": Word(
        "clocks aligned",
        "The clocks of the ranks differ. All members of a collective leave it together, which gives the difference; "
        "times across ranks use it, and nothing smaller than what it is known to is stated.",
    ),
    "clocks-by-messages": Word(
        "clocks by messages",
        "Pipeline stages may have no collective in common. On one host they are taken to share its clock. Across hosts "
        "a message ends on its sink no sooner than on its source, so messages both ways bound how far the clocks are "
        "apart; half of what lies between the bounds is the uncertainty. Only the critical path rests on it.",
    ),
    "core-noise": Word(
        "core noise",
        "Equal ranks on CPU cores make each other wait for some of the step without any fault. A rank that is late by "
        "no more than that is not named.",
    ),
    "cpu-communication": Word(
        "communication on the CPU",
        "Gloo shows a collective as one span from its start to its end, in which it also queues and waits for peers.",
    ),
    "events-apart": Word(
        "events apart",
        "A timestamp lies far from all others, or one file holds several captures: steps and idle time may be wrong.",
    ),
    "few-cores": Word(
        "few cores",
        "A rank has fewer CPU cores than it needs for training, communication and the profiler at once: they delay "
        "each other.",
    ),
    "first-use": Word(
        "first use",
        "The first call of a communicator sets it up and is long for that; later calls do not pay for it.",
    ),
    "gloo-beside-device": Word(
        "gloo beside the device",
        "In a run on GPUs some calls go over gloo on the CPU. They occupy no device and are in no sum.",
    ),
    "graph-calls": Word(
        "calls in CUDA graphs",
        "Calls that a CUDA graph replays carry no arguments; size and group come from the capture's notes, or are not "
        "known.",
    ),
    "group-assumed": Word(
        "group assumed",
        "The trace names no process groups, so all calls count as calls of one group of all ranks.",
    ),
    "incomplete-step": Word(
        "incomplete step",
        "The recording ended before all kernels of a step were in it.",
    ),
    "missing-ranks": Word(
        "missing ranks",
        "Not every rank of the job is in the input; what the missing ones did is not known.",
    ),
    "no-communication": Word(
        "no communication",
        "No kernel or span in this trace was recognised as communication.",
    ),
    "no-event": Word(
        "no event",
        "A library that was seen moves some of its data without any event, which no trace can show.",
    ),
    "no-launch-links": Word(
        "no launch links",
        "Nothing tells which call launched a kernel, so steps are those of the CPU, and the host-bound part is not "
        "known.",
    ),
    "no-step-marks": Word(
        "no step marks",
        "The loop does not call step() of the profiler: there is one window, and nothing is per step.",
    ),
    "not-built": Word(
        "not replayed",
        "How long the run would be without slow ranks is not stated, since a replay needs more than this input has.",
    ),
    "older-captures": Word(
        "older captures",
        "The folder holds several captures of the same ranks; the newest was taken. --only chooses another.",
    ),
    "partly-linked": Word(
        "partly linked",
        "Some kernels have no launch in the trace; host-bound time and causes rest on the others.",
    ),
    "possible-communication": Word(
        "possible communication",
        "Copies between devices that no operator explains: they may be communication, and count as copies.",
    ),
    "profiler-start": Word(
        "profiler start",
        "Ranks begin to record at different moments, and the first calls wait for the last of them: an effect of the "
        "measurement.",
    ),
    "rank-assumed": Word(
        "rank assumed",
        "The file does not say which rank it is of; its name did, or rank 0 is assumed.",
    ),
    "rank-conflict": Word(
        "rank conflict",
        "File name and content name different ranks; the content is believed.",
    ),
    "repaired": Word(
        "repaired",
        "Events with a small damage, such as a broken escape, were read after it had been repaired.",
    ),
    "sequence-untrusted": Word(
        "sequence untrusted",
        "Sequence numbers put calls of different operation or size together, so the order of calls is used instead.",
    ),
    "single-rank": Word(
        "single rank",
        "With the trace of one rank, waiting for others cannot be told from transfer, and nobody can be late.",
    ),
    "skipped": Word(
        "skipped",
        "Events that cannot be used, such as those without a duration, were left out.",
    ),
    "slow-step": Word(
        "slow step",
        "The capture watched for steps that take much longer than usual, and found some.",
    ),
    "steps-without-window": Word(
        "steps without a window",
        "A step that launched no compute has no place on the device's timeline; means are over the others.",
    ),
    "truncated": Word(
        "truncated",
        "The file ends in the middle; everything before that was read.",
    ),
    "unclassified-kernels": Word(
        "unclassified kernels",
        "Kernels that no rule names take a good part of the time. They count as compute.",
    ),
    "unmatched": Word(
        "unmatched",
        "Calls that could not be found again on the other ranks: nothing is said about waiting in them.",
    ),
    "waits-cost-nothing": Word(
        "waits cost nothing",
        "Others wait for these ranks, but a step would hardly end earlier without that: something else decides when it "
        "ends. They are not named as late.",
    ),
}
