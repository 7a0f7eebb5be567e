"""`underglass report`: one page about a run for a ticket, as HTML or Markdown."""

from visualizer.report.report import parts_of as parts_of
from visualizer.report.report import report as report
