version = 2
jobs "x" {}
job "bad job" {
  type        = "daemon"
  priority    = 200
  datacenters = ["", "dc1"]
  regoin      = "eu"

  constraint {
    attribute = "${attr.kernel.name}"
    operator  = "~~"
    value     = "linux"
  }
  constraint {
    attribute = "${attr.kernel.name}"
    regexp    = "("
  }
  constraint {
    attribute = "$attr.kernel.name"
    value     = "linux"
  }
  constraint {
    attribute = "${platform.x}"
    value     = "1"
  }
  constraint {
    attribute = "${attr.v}"
    version   = "~> foo"
  }

  group "g" {
    count = -1
    network {
      port "http" {}
    }
    scaling {}
    restart {
      attempts = 0
      mode     = "delay"
      interval = "2s"
    }
    reschedule {
      attempts       = 3
      interval       = "10s"
      delay          = "1s"
      delay_function = "linear"
    }
    disconnect {
      lost_after           = "-1h"
      stop_on_client_after = "1h"
      reconcile            = "newest"
    }
    ephemeral_disk {
      size = 5
    }
    task "t" {
      driver = "rawexec"
      user   = "nobody"
      env    = ["a"]
      config {
        command = "x"
      }
      config {}
      resources {
        cpu    = 0
        memory = 5
        cores  = 2
        device "gpu" {}
      }
      kill_timeout = "soon"
      kill_signal  = "stop"
    }
    task "t" {
      constraint {
        distinct_hosts = true
      }
      logs {
        max_files = 50
      }
      meta = { "" = "x" }
      leader = true
    }
    task "a/b" {
      driver = "sim"
      leader = true
      shutdown_delay = "3s"
    }
    task "alloc" {
      driver = "sim"
    }
    task {
      driver = "sim"
    }
  }
  group "g" {
    count = "many"
  }
  group "h" "i" {
    count = 1.5
    task "x" {
      driver = "sim"
      restart = 3
      config = { a = platform.x }
    }
  }
}
job "second" {}
