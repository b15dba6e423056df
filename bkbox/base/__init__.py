"""The foundation of every layer: ids, limits, values, documents, texts, logs, facts about the host."""
