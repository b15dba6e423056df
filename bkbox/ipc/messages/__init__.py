"""Control messages between the supervisor, the workers, the front-end and the repair worker, by what they are about."""
