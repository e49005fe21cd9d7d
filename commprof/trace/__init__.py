"""From files to the columns of each rank: read, repaired, normalised, classified; nothing is measured here.

The modules in the order in which data flows through them. A test holds this list to the files.

Bytes to events:

    discover           which files are meant
    recaptures         of several captures in one folder the newest
    source             a path or URL as decompressed blocks
    document           a stream of bytes as header, events and tail
    batch              some neighbouring events, decoded at once
    byte_pairs         where two bytes stand side by side, fast
    events             one event as a typed record
    walker             the slow way: one event at a time, with repairs
    repair             the text of one event that is not JSON
    repeated_keys      keys that stand twice
    huge_numbers       numbers beyond a double
    nesting            values too deep in each other
    timestamps         written microseconds to integer nanoseconds
    workers            processes that help with a large file
    team               what they do
    leash              they do not outlive the one that leads, and leave Ctrl-C to it
    segments           the text that each of them decodes
    ahead              their results put in order

Events to columns:

    categories         which table an event belongs to
    interning          names and ids as integers
    columns            events to columns
    packing            columns in little space
    metadata           what a file says about itself
    model              the types that cross to analysis
    read               one file to the columns of one rank
    heap               freed memory kept, then back to the system

What device work is:

    links              which call launched it, under which operator
    kernel_rules       the table of names, by vendor and era: data alone
    kernel_names       asks that table
    classify           compute, communication or copy
    clip               impossible ends
    cpu_compute        compute of a trace without a device

Device work to calls:

    operations         operations, types and sizes: the vocabulary
    arguments          what the arguments of an event say
    splits             who gets how much in an all-to-all
    describe           what is known about the call of a device event
    coalesced          rows of calls that one launch carries out
    graph_notes        calls that a CUDA graph replays
    calls              kernels to calls
    call_table         what was found out, as columns
    group_table        the process groups that calls name
    gloo               calls of a trace without a device
    gloo_pairs         which operator launched which span
    gloo_groups        which group a span belongs to

To other tools:

    hta                the columns as HTA's objects
"""
