"""The words of the report explained, and the background that helps to read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commprof.report.causes import EXPOSED, IDLE, LATE, ROLES, Word
from commprof.report.note_words import NOTES


@dataclass(frozen=True)
class Term:
    """``slug`` is the anchor in the page, ``text`` one short paragraph."""

    slug: str
    term: str
    text: str


MEASURED = (
    Term(
        "verdict",
        "Verdict",
        "Communication is called the bottleneck when exposed communication that the host did not cause takes at least "
        "a tenth of the step (or window) and at least half as long as idle time. Where exposed communication, exposed "
        "copies and idle together take less than a tenth, the device is busy computing; else the larger of idle and "
        "copies decides.",
    ),
    Term(
        "compute",
        "Compute",
        "Time during which at least one kernel runs that is neither communication nor a copy. Kernels that overlap "
        "count once. Kernels that fuse compute and communication count as compute and are listed apart.",
    ),
    Term(
        "communication",
        "Communication",
        "Time during which at least one collective or point-to-point kernel is on the device. It lasts from the "
        "moment the kernel starts to the moment it ends, so it holds waiting for late ranks as well as transfer. In "
        "runs on CPUs (gloo) it also includes queueing.",
    ),
    Term(
        "exposed",
        "Exposed communication",
        "Communication while this rank computes nothing. Only this part makes a step longer, and only this part "
        "can be won back by better overlap.",
    ),
    Term(
        "overlap",
        "Overlap",
        "Communication hidden behind compute. The overlap ratio is overlap divided by communication time; it does "
        "not exist where there is no communication.",
    ),
    Term(
        "overlap-thin",
        "Overlap that is worth less",
        "Two parts of overlap are stated apart, because little compute hides them: overlap behind kernels that exist "
        "only for communication, such as copies into buckets, and overlap behind kernels that fill less than a tenth "
        "of the device.",
    ),
    Term(
        "fused",
        "Fused kernels",
        "Kernels that compute and communicate at once. They count as compute; with the traces of all ranks the time "
        "that they wait for a peer is told.",
    ),
    Term(
        "exposed-copies",
        "Exposed copies",
        "Memory copies and fills outside compute and outside communication.",
    ),
    Term(
        "idle",
        "Idle",
        "The rest: no compute, no communication, no copy. Compute, exposed communication, exposed copies and idle "
        "add up to the step, to the nanosecond. Of a rank that trains on CPU cores (gloo) idle is time in which its "
        "training threads run no operator: Python, the autograd engine, calls that start a collective, the profiler, "
        "whose own work lies there too, or the process waits for a core. The trace does not tell these apart; a "
        "capture says for how long the training thread was ready to run and had no core, as Linux counts it. "
        "Training without the profiler has less of all this.",
    ),
    Term(
        "step",
        "Step and window",
        "A step runs on the device's own timeline: from the first compute kernel on the main stream that was launched "
        "inside one step mark to the first one of the next. A trace without step marks has one window, and "
        "nothing is then called per step.",
    ),
    Term(
        "open",
        "Open step",
        "The last step of a capture has no successor to end it, so it lacks the gap and the communication before "
        "the next step. Means leave it out where a closed step exists.",
    ),
    Term(
        "incomplete",
        "Incomplete step",
        "A step in which kernels were launched that the capture no longer recorded.",
    ),
    Term(
        "exposed-call",
        "Exposed time of one call",
        "Exposed time is shared out among the calls that run at that moment and that end before compute goes on. "
        "The shares of all calls add up to the exposed communication of the rank.",
    ),
    Term(
        "host-bound",
        "Host-bound",
        "Exposed or idle time in which the next compute kernel had not even been launched. The CPU was late, whatever "
        "communication did, so a faster network would not help.",
    ),
    Term(
        "recoverable",
        "Could come back (recoverable), charged",
        "Charged is the exposed and idle time that one finding accounts for; every instant is charged to one finding "
        "only. Recoverable is what a step would shrink by if that cause alone were gone: mostly the charge without its "
        "host-bound part, or what of it would hide behind compute. Where all ranks are there, late ranks, input, the "
        "CPU and too many messages promise what they take of the critical path of the run (the chain of what each "
        "instant waited for, over all ranks), and slow links, low bandwidth and tensor parallel across hosts what the "
        "run gains when it is replayed with shorter calls. "
        "These two are bounds and may be more than the charge, since such a cause also delays what "
        "is charged to others; whatever would take its place makes them less. What is about transfers alone, such as "
        "the last bucket, promises no more than transfers take of that path. All promises together are no more than "
        "is lost. Charge and promise are of the rank that loses the most time in each step, where the lateness of "
        "others shows in full, averaged over steps.",
    ),
    Term(
        "bounds",
        "Bounds",
        "How short a step could at best become: without the first finding, if no rank waited for another, or if all "
        "communication were hidden. Each starts at the step of the rank that loses the most, on which findings are "
        "measured too, and takes off what shows there: of hidden communication no more than is on the "
        "critical path of the run. A real change reaches less.",
    ),
    Term(
        "tail",
        "Tail",
        "Exposed communication after the last compute of the backward pass. No later compute exists that could hide "
        "it; a smaller last bucket makes it shorter.",
    ),
    Term(
        "bucket-copies",
        "Bucket copies",
        "Copies of gradients inside the device, into the buffer that is reduced or back. They are copies and no "
        "communication; with gradient_as_bucket_view gradients live in their buckets and nothing is copied.",
    ),
    Term(
        "lag",
        "Ready, launched, lag",
        "A bucket is ready when the last compute before it has ended: its last gradient and the copy into the bucket. "
        "Lag is the time from ready to the launch by the CPU. Positive: the CPU was late. Negative: it ran ahead, "
        "which is harmless.",
    ),
    Term(
        "queued",
        "Queued, start delay",
        "Queued is the time that a call, ready and launched, stood behind earlier communication on its stream. Start "
        "delay is what remained until it ran.",
    ),
    Term(
        "bucket-sizes",
        "Other bucket sizes",
        "The gradients of the recorded buckets cut anew at another size limit: each new bucket starts when its last "
        "gradient is ready and the one before it is done, and takes the latency and bandwidth measured on this group. "
        "What is left after the backward pass is the tail. Waiting for late ranks is not in it.",
    ),
    Term(
        "slack",
        "Slack",
        "Time between the end of a gather and the moment at which compute needs its layer. Negative slack is exposed.",
    ),
    Term(
        "waiting",
        "Waiting and transfer",
        "In a collective that nobody can finish before the last rank has entered, the shortest duration over "
        "all ranks is transfer; what a rank spends beyond it is waiting for others. With one rank alone the two "
        "cannot be told apart.",
    ),
    Term(
        "waiting-hidden",
        "Exposed waiting, all waiting",
        'Waiting may be hidden behind compute, and then costs nothing. Verdict, causes and findings, and "of it '
        "waiting\" in the tables of groups, are exposed waiting alone. All waiting, in the page's table of groups, the "
        "tables by rank and the heat maps of ranks that wait, holds both: do not add the two, the one is a part of the "
        "other.",
    ),
    Term(
        "skew",
        "Last to arrive, skew",
        "The rank that entered a collective last, and the time from the first arrival to the last. By aligned clocks "
        "where these are known well enough, else the rank whose kernel ran shortest is taken to be the last.",
    ),
    Term(
        "matching",
        "Matched calls",
        "The same collective found on every member, by group, operation and number of the call, or by order where "
        "there is no number. A call that is missing on a member gives bounds at most, and is listed.",
    ),
    Term(
        "flags",
        "Flags of a call",
        "Profiler start: a long first call, in which ranks wait until the profiler runs on all of them. First use: its "
        "communicator was set up in it. Window edge: the capture began or ended there. Their times say little about "
        "the network.",
    ),
    Term(
        "charged",
        "Charged to a late rank",
        "The exposed waiting of all others in the calls to which a rank came last, divided by their number: lost time "
        "per rank of the job. Waiting that an earlier late rank caused is passed on along the chain to where it began.",
    ),
    Term(
        "late-shares",
        "Shares of a late rank",
        "Four numbers speak of lateness, each with its own whole. The verdict: what the lateness of named ranks costs "
        "all ranks together, over the step time of all, the late one included, which waits for nobody. It is exposed "
        "waiting for a peer, and transfers that came later because waiting behind compute held them up: so it may be "
        "more than all exposed waiting for a peer. The charge of a "
        "late rank: what the others lose to it, over the others alone, so with two ranks it is about twice that of "
        "the verdict. The finding: what shows on the rank that loses the most, over its step. And the limit "
        "max-straggler-wait holds all exposed waiting for a peer, whether anybody is named as late or not, and no "
        "transfers, over the step time of all ranks.",
    ),
    Term(
        "wait-chain",
        "Chain of waiting",
        "Who waited for whom in the step in which late ranks cost most: from its longest wait to the late rank, on to "
        "the rank that this one had waited for in another group, and so on, down to the rank that nobody held up.",
    ),
    Term(
        "replay",
        "Replay without slow ranks",
        "The run worked out again with other durations: what each rank does by itself between two calls takes as long "
        "as on the median rank of its role, and every call keeps its transfer. Measured step time over that of the "
        "replay is the slowdown by slow ranks. A bound: overlapping work is not slowed down or sped up by it.",
    ),
    Term(
        "clocks",
        "Clock offset",
        "Every process has its own clock. Offsets between them are estimated from the ends of collectives that all "
        "ranks leave together; no difference below their uncertainty is stated. Ranks that no collective connects, "
        "such as the stages of a pipeline, are joined by messages both ways, with an uncertainty of its own, only for "
        "the critical path.",
    ),
    Term(
        "group",
        "Process group and role",
        "The ranks that take part in a collective, known by name and members. Its role (data, tensor, pipeline, expert "
        "parallel and so on) is inferred, and the evidence stands beside it.",
    ),
    Term(
        "busbw",
        "Bus bandwidth",
        "Bytes divided by transfer time, multiplied by what the algorithm sends per byte (2(N-1)/N for an "
        "all-reduce), so that operations and group sizes compare with the speed of the link. 1 GB/s is "
        "1,000,000,000 bytes per second. Where waiting cannot be taken out, it is at least the value shown.",
    ),
    Term(
        "contended",
        "Clean and contended calls",
        "A call is clean if nobody waited in it for longer than it transferred and no other work of its members ran "
        "beside it. Bandwidth is taken from clean calls where there are five, else from all of them: contended.",
    ),
    Term(
        "ceiling",
        "Ceiling",
        "What the links of a group can carry: NVLink inside one domain, the network adapters that its members can use "
        "across hosts. It is a range, because a ring and a hierarchical algorithm use them differently. Bandwidth is "
        "called low only below the lower end.",
    ),
    Term(
        "imbalance",
        "Imbalance of an all-to-all",
        "The most over the mean of the bytes that the ranks send (or receive). Where it is above 1, the ranks with "
        "less to do wait.",
    ),
    Term(
        "overlap-cost",
        "Overlap cost",
        "Kernels beside communication share memory and processors with it and take longer than the same kernels "
        "alone. The cost is that difference times the calls beside.",
    ),
    Term(
        "phase",
        "Phase, module, bucket",
        "Where in the step a call stands: forward, backward, optimizer or input; the module whose parameters or "
        "activations it moves; the gradient bucket that it reduces.",
    ),
    Term(
        "bubble",
        "Pipeline bubble",
        "What a stage idles, and waits to receive, from the first forward to the last backward of any stage. With p "
        "stages, m micro-batches and v model chunks per rank the ideal part is (p-1)/(v m + p - 1).",
    ),
    Term(
        "severity",
        "Severity of a finding",
        "By what the finding is charged with or would give back, whichever is more: low from a fiftieth of the step, "
        "medium from a twentieth, high from a tenth; below that, or where no time can be stated, it is only mentioned. "
        "The limits are this project's own and can be changed.",
    ),
    Term(
        "confidence",
        "Confidence of a finding",
        "Measured: the time itself was seen. Upper bound: at most this comes back. Estimate: fewer than three "
        "steps, so that the noise over steps is not known.",
    ),
    Term(
        "na",
        "n/a",
        "Not measurable from this input. It is not zero; the notes say why.",
    ),
)

BACKGROUND = (
    Term(
        "all-reduce",
        "All-reduce is two steps",
        "An all-reduce is a reduce-scatter followed by an all-gather. On a ring of N ranks each step moves "
        "(N-1)/N of the tensor, so every rank sends 2(N-1)/N of it: 1 times its size with two ranks, nearly 2 "
        "times with many.",
    ),
    Term(
        "ddp",
        "Data parallel (DDP)",
        "Every rank holds the whole model and all-reduces the gradients. Buckets are sent while the backward pass "
        "still computes, so almost all of it can hide, except the last bucket: its gradients come last and "
        "nothing is left to hide it.",
    ),
    Term(
        "zero2",
        "ZeRO-1 and ZeRO-2",
        "Gradients are reduce-scattered, which is half the traffic of an all-reduce; the updated parameters are "
        "then all-gathered, which is the other half. The total equals DDP's; what falls is memory.",
    ),
    Term(
        "zero3",
        "ZeRO-3 and FSDP",
        "Parameters are sharded too, so they are gathered in the forward pass and again in the backward pass: "
        "1.5 times the traffic of DDP. It hides well if each layer is gathered while the layer before it computes.",
    ),
    Term(
        "tp",
        "Tensor parallel",
        "Each layer is split across ranks, and the result is needed before the next layer can begin. This "
        "communication lies on the critical path and cannot fully hide, so the group belongs inside one NVLink "
        "domain.",
    ),
    Term(
        "pp",
        "Pipeline parallel",
        "Only the activations at stage borders travel, which is little. The cost is the bubble: stages wait "
        "while the pipeline fills and drains.",
    ),
    Term(
        "ratio",
        "Compute against communication",
        "Whether communication can hide is a matter of how much compute there is per byte sent. Faster GPUs "
        "shrink the compute and leave the bytes, and since GPUs have grown faster than networks, the same job "
        "becomes more bound by communication with each generation. Larger batches per rank, fewer bytes and "
        "faster links go against it.",
    ),
)


def _terms(prefix: str, words: Mapping[str, Word]) -> tuple[Term, ...]:
    return tuple(
        Term(f"{prefix}-{code}", word.name[:1].upper() + word.name[1:], word.meaning)
        for code, word in words.items()
        if code != "unknown"
    )


GLOSSARY = (
    ("Measured here", MEASURED),
    ("Background", BACKGROUND),
    ("Why communication is exposed", _terms("cause", EXPOSED)),
    ("What idle time is", _terms("idle", IDLE)),
    ("Why a rank is late", _terms("late", LATE)),
    ("What a group is for", _terms("role", ROLES)),
    ("What a note means", _terms("note", NOTES)),
)
