node_pool "example" {
  description = "what its nodes are for"

  # What holds for allocations without a disconnect block when their node is away:
  # "keep" leaves them to it, "nomad" replaces them at the missed deadline.
  default_disconnect = "keep"

  # The time between two beats; without it, it goes by the size of the fleet.
  # heartbeat_ttl = "30s"

  meta {
    owner = "operations"
  }

  # What differs for its nodes from how all jobs are scheduled.
  # scheduler_config {
  #   scheduler_algorithm             = "spread"
  #   memory_oversubscription_enabled = false
  # }
}
