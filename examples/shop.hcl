# How many tills there are, each on an edge of its own: --var tills=1.
variable "tills" {
  type    = number
  default = 3
}

# What every shop runs: the tills' backend and the stock counter. Both go on
# when the shop has no link, also through a reboot; nothing replaces them
# elsewhere, for the tills stand here.
job "shop" {
  datacenters = ["*"]
  type        = "service"

  group "till" {
    count = var.tills

    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    disconnect {
      lost_after = "24h"
      replace    = false
      reconcile  = "keep_original"
    }

    restart {
      attempts = 10
      interval = "1m"
      delay    = "1s"
      mode     = "delay"
    }

    task "backend" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do echo \"$(date -u +%T) sold at ${node.unique.name}\"; sleep 1; done"]
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }

    task "stock" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "exec sleep 86400"]
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
