"""Small Kineto traces written down by hand: events in, files out, nothing computed."""
