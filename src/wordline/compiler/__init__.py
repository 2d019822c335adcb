"""From a graph to a device program."""
