"""Load and faults: a started server, real sockets, and clients that behave or do not."""
