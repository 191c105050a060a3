"""llama.cpp's own server on this machine, in a process of its own: what runs it, its port, its model."""
