"""Compound operations on a weft volume: programs of file operations that the volume's server runs as one.

    import weft

    with weft.connect() as volume:
        chain = weft.Chain(durable=True)
        new = chain.create("/config.new", exclusive=True)
        chain.write(new, b"verbose = true\\n")
        chain.rename("/config.new", "/config")
        volume.run(chain)
"""

from ._answer import Answer, Attributes, ChainFailed, Outcome
from ._chain import NOT_FOUND, Chain
from ._connection import Batch, Connection, File, connect
from ._values import AttributesValue, BytesValue, FileValue, NumberValue, Value

__all__ = [
    "NOT_FOUND",
    "Answer",
    "Attributes",
    "AttributesValue",
    "Batch",
    "BytesValue",
    "Chain",
    "ChainFailed",
    "Connection",
    "File",
    "FileValue",
    "NumberValue",
    "Outcome",
    "Value",
    "connect",
]
