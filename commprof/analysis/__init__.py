"""From the columns of each rank to numbers; nothing is judged here, and nothing is turned into text for people.

The modules in the order in which data flows through them. A test holds this list to the files.

From files to one result:

    run                paths to an ``Analysis``: every rank is read and reduced on its own, several at once
    cluster            ranks read by the workers of a Dask scheduler
    captures           two files for one rank: how to choose
    selection          which steps are asked for
    needs              what reading keeps of the CPU side
    rank               one rank from its columns to its numbers; calls the next two sections
    combine            the ranks side by side: which are missing, which groups they share, notes
    across             what only all ranks together tell; calls the sections after those
    model              the types that cross to diagnosis and report

One device of one rank, how long:

    devices            device events to the work that is measured
    work               that work as arrays
    windows            where each step begins and ends
    steps              which steps a mean is taken over
    hostbound          when the CPU had launched nothing to compute
    split              compute, exposed communication, exposed copies, idle: exact
    attribution        exposed time of single calls
    shares             those of all devices of the rank
    rollup             added up by operation, group, stream, phase, module, bucket
    coverage           how much of the device work was understood
    timeline           one step as few segments, to draw

One rank, where and why; ``where`` calls the others:

    where              calls them in order
    where_model        a type for each table that they fill
    scene              what they look at: the rank with its columns
    places             the words for phases, causes and flags, and columns that use them
    ranges             which instants lie in which named range of a CPU thread
    phases             forward, backward, optimizer, input
    passes             the backward pass on the device
    modules            which module a call works for
    purposes           gradients, parameters, activations or control
    flags              calls that the profiler's start or a new communicator made long
    buckets            DDP's buckets: ready, launched, started, ended
    bucket_copies      copies into and out of them
    units              the same for FSDP and ZeRO-3
    timing             what decided when a call started
    hiders             which kernel hid a call
    syncs              where the CPU waits for the device
    causes             one cause for every piece of exposed time
    idle               what idle time waited for
    host_delays        what had held the CPU up
    contention         what overlap costs compute
    stage_facts        what a pipeline stage keeps of itself
    named_spans        time in ranges that single findings are about
    frameworks         which libraries communicate for the program
    behaviour          what the rank did between its calls, small enough to keep
    trail              what its CPU did, small enough to keep

One call over all ranks, and waiting:

    all_calls          the calls of all ranks as one table
    codes              operations by name in columns of codes
    segments           minima and maxima of groups of rows
    lanes              within which sequences calls can be the same
    realign            order without sequence numbers
    pairing            which calls of a lane belong together
    exchanges          batches of messages that meet
    matching           the result: which rows are one call, who is missing
    messages           how long messages take where no common clock tells
    odd_ranks          captures that are not like the others
    clocks             offsets between the ranks
    clock_notes        what is said about them
    waiting            waiting and transfer of every call
    oneway             the same where not everybody waits for everybody
    fusedwait          the same inside fused kernels
    exposedwait        the part of exposed time that is waiting
    peer_waits         causes and flags that only other ranks can tell

Groups, strategy and bandwidth:

    hosts              which rank is on which host
    hardware_table     peak rates, with their sources
    hardware           which machine it was, what a group can reach on it
    traffic            who moved what when in a step
    group_use          what one member used a group for
    descriptions       what its description says
    shapes             the shape of a set of ranks
    roles              the role of every group
    role_evidence      the sentences that say why
    volumes            bytes by formula beside measured ones
    strategy           the parallel strategy, part by part
    parallelism        calls these in order
    fit                latency and bandwidth from transfers
    bandwidth          of calls and groups
    beside             what shares the links of a call
    slow_links         transfers that stand out
    bucket_advice      which bucket sizes would leave the least
    imbalance          all-to-alls with unequal splits
    tensor_parallel    pairs of collectives around a block
    pipeline           the bubble, stage by stage

Late ranks:

    peers              ranks that run the same program
    lateness           what a rank did beyond its peers before a call
    decided            who made a call late beyond doubt
    carried            waiting that a pipeline carries on
    held_sources       sources that waited for their sink
    displaced          transfers exposed by waiting before them
    charges            what late ranks cost, followed back to where it began
    blame              why a rank was late
    core_wait          ranks whose core others use too
    core_noise         what CPU cores differ by without a fault
    turns              pauses that go round
    levels             hosts, stages and replicas that are late together
    stage_pace         stages that have more to do
    device_pace        how much slower one device is for the same kernels
    stragglers         who is late, how regularly, why
    late_on_path       whether the run would end earlier without them
    wait_chain         the longest wait, back to its origin
    replay             a job with other durations
    what_if            the step without slow ranks
    shorter_calls      the step with shorter calls, as far as its CPUs let it be
    critical_path      what each instant of the steps waited for
    device_floor       what a step takes if its CPU is always ahead
    message_clocks     one clock for it where only messages connect ranks
"""
