"""Programs that the capture tests run in processes of their own."""
