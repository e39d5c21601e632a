# How long an edge may be away before its copy counts as lost: --var lost_after=15s.
variable "lost_after" {
  type    = string
  default = "5m"
}

# The price service: three copies on machines of their own, and a spare machine may
# take one over. A copy on an edge that is away runs on, and another one is started
# elsewhere at once. When the edge is back within lost_after its copy is kept and the other
# one goes; when it is back later its copy was lost, and is stopped.
job "prices" {
  datacenters = ["*"]
  type        = "service"

  group "api" {
    count = 3

    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    disconnect {
      lost_after = var.lost_after
      replace    = true
      reconcile  = "keep_original"
    }

    task "server" {
      driver       = "raw_exec"
      kill_timeout = "2s"

      config {
        command = "/bin/sh"
        args    = ["-c", "exec sleep 86400"]
      }

      resources {
        cpu    = 100
        memory = 64
      }
    }
  }
}
