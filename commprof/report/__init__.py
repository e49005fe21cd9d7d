"""From analysis and diagnosis to one dict, and from that dict to the terminal, JSON, Markdown and HTML.

The modules in the order in which data flows through them. A test holds this list to the files.

The dict, which is the JSON report:

    view               the one dict that every renderer reads
    contract           its types, from which the JSON Schema is made
    rows               files, ranks, steps and calls
    step_rows          steps over ranks
    exchange_rows      what a call moves
    group_rows         process groups
    strategy_rows      strategy and bytes
    where_rows         the place of calls, idle time, contention, pipeline
    exposure_rows      exposed time by everything it is added up by
    bucket_rows        buckets and sharded units
    waiting_rows       matching, waiting, late ranks
    findings_rows      findings, accounting, bounds
    hta_rows           the appendix of HTA
    limits             limits on its numbers: ``commprof check``

Renderers, which compute nothing:

    causes             words for causes, roles and strategies
    glossary           words of the report explained
    note_words         what the codes of its notes mean
    summary            what terminal and Markdown say
    terminal           the summary in a terminal
    markdown           the summary as Markdown
    charts             the parts of the page
    html               the page
    write              where files go

Two runs, and ``commprof doctor``:

    kept               a report that is read again
    compare_view       two reports side by side
    same_job           whether two reports are of one job, or of two that no comparison makes sense of
    compare_findings   which findings of the two are the same
    compare_text       that in a terminal
    compare_html       that as a page
    doctor_view        what ``doctor`` found
"""
