"""Small real training jobs to capture, and what starts them; each job is a module run once per rank."""
