# The shop of shop.hcl in containers. The image needs sh, date and sleep, as busybox has them:
#   skerry job run --var image=busybox:1.36 examples/shop-docker.hcl
variable "tills" {
  type    = number
  default = 3
}

variable "image" {
  type    = string
  default = "busybox:1.36"
}

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
      driver = "docker"

      config {
        image        = var.image
        command      = "sh"
        args         = ["-c", "while true; do echo \"$(date -u +%T) sold at ${node.unique.name}\"; sleep 1; done"]
        network_mode = "none"
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }

    task "stock" {
      driver = "docker"

      config {
        image        = var.image
        command      = "sleep"
        args         = ["86400"]
        network_mode = "none"
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
