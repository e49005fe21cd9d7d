"""From numbers to a judgement: findings with evidence, what they cost, the verdict.

The modules in the order in which data flows through them. A test holds this list to the files.

    diagnose           calls what follows
    thresholds         every limit, with the source of its default
    ground             the reference rank of every step and its lost time: what rules stand on
    findings           the rules, in the order of precedence
    catalogue          the ids of the findings
    accounting         each lost instant to at most one finding
    bounds             what the step takes at least without something
    gain               what hiding all communication would bring, in words
    on_path            what of the critical path a cause takes
    cpu_room           what faster CPUs could give back at all
    totals             where the time of all ranks went
    waiting            how much of exposed time is waiting
    verdict            what the bottleneck is
    sentences          that in words
    story              whether verdict and findings tell one story
    model              the types that cross to the report

``commprof doctor``:

    examination        a look at every file of a run
    fitness            one function per question
    doctor             asks them in order
    recapture          the capture that would be better
"""
