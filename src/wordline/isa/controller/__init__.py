"""Instructions of the controller beside the channels, which every generation has: control, vector passes, transfers."""
