"""The kernel level: what each engine does, over symbolic scratch buffers and registers; imports no other level."""
