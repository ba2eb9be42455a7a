"""Rules of the objects that administrators write: queues, flavors, cohorts, checks, topologies, policies."""
