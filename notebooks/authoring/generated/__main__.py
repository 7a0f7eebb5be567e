"""`make tables`."""

from authoring.generated.files import write

write()
