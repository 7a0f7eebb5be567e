"""From sampled token ids to output: text, stop strings and tools."""
