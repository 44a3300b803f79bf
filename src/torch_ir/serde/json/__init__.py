"""The JSON form of an IR: records, their reader and writer, and the place of each fault."""
