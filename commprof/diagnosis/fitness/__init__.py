"""Is a trace fit for analysis: one small function per question, grouped by what they look at."""
