"""What the jobs call, counted beside the trace; faults injected into real runs."""
