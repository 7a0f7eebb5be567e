"""What is written from declarations, into docs and into the front end: `make tables`."""
