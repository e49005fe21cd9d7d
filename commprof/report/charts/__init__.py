"""The parts of the HTML report: each module turns one piece of the view dict into what a template or a script shows.

Nothing here measures or judges. A part is plain data: text for Jinja, or columns that go to the browser as JSON. The
parts in the order of the page, each beside the template of its section. A test holds this list to the files.

    hero               the first screen
    accounting         one step as one bar
    findings           what costs time
    split              the step of every rank
    timeline           one step, lane by lane
    exposure           where communication is exposed
    idle               what idle time waited for
    buckets            DDP's buckets
    bucket_sizes       other sizes for them
    units              sharded layers
    tensor             tensor parallel, block by block
    pipeline           bubble, unequal exchanges, what overlap costs
    waiting            who waits for whom
    stragglers         who is late
    wait_chain         the longest wait as sentences
    strategy           strategy and bytes
    groups             process groups
    calls              the table of collectives
    appendix           limits, and figures of other tools
    quality            how far the numbers can be trusted
    unsaid             what the input does not tell
    hta                what HTA says

What they share:

    tracks             bars in table rows
    wording            the words around numbers
    payload            data for the browser
"""
