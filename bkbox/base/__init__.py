"""What every layer may use: ids, limits, values, documents, texts, logs, facts about the host."""
