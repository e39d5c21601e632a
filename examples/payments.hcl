# How long a terminal may go on without a hub: --var stop_after=15s.
variable "stop_after" {
  type    = string
  default = "10m"
}

variable "copies" {
  type    = number
  default = 2
}

# The payment gateway must not go on for long without the hubs' knowledge: an edge
# that is away for stop_after stops its copy by itself, and then, never before, the
# hubs start another one elsewhere.
job "payments" {
  datacenters = ["*"]
  type        = "service"

  group "gateway" {
    count = var.copies

    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    disconnect {
      stop_on_client_after = var.stop_after
      replace              = true
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
