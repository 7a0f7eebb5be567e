"""What the engine thread does for moves of KV between servers; `kv_transfer.py` has the body."""

from engine.core.engine import Engine
from engine.core.part_errors import RECOVERABLE
from server.core.commands import AdoptKV, DescribeKV, ExportedPages, ExportKV, KVCommand, KVLayout
from server.core.run_until import Refusal


def run_kv_command(engine: Engine, command: KVCommand) -> KVLayout | ExportedPages | int | Refusal:
    """Run a command between two steps and return its reply; a `Refusal` if a learner's part fails."""
    match command:
        case DescribeKV():
            return _layout(engine)
        case ExportKV():
            blocks, data = engine.kv_transfer.export(command.tokens, command.first)
            return ExportedPages(_layout(engine), command.first, blocks, data)
        case AdoptKV():
            try:
                adopted: int = engine.kv_transfer.adopt(
                    command.tokens, command.pages, first=command.first, source=command.source
                )
                return adopted
            except RECOVERABLE as error:
                return Refusal(500, str(error), code="part_failed")


def _layout(engine: Engine) -> KVLayout:
    config = engine.config
    return KVLayout(engine.kv_transfer.pages.kv_format(), config.block_size, config.num_blocks)
