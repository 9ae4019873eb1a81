"""Stand-ins for what a page's commands speak to, and this machine lacks: a
cluster, a container engine, the world outside. Each refuses what the real one
refuses, as far as our pages come near it."""
