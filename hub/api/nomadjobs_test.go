package api_test

// shopJob is a job that asks for all that this release acts on.
const shopJob = `
job "shop" {
  datacenters = ["dc1"]
  node_pool   = "default"
  type        = "service"
  priority    = 60
  all_at_once = true
  meta { team = "tills" }
  ui {
    description = "the shop"
    link {
      label = "plan"
      url   = "https://example.com"
    }
  }
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  affinity {
    attribute = "${node.class}"
    value     = "till"
    weight    = 20
  }
  spread {
    attribute = "${node.datacenter}"
    weight    = 30
    target "dc1" { percent = 100 }
  }
  update {
    max_parallel      = 1
    canary            = 1
    min_healthy_time  = "10ms"
    healthy_deadline  = "1m"
    progress_deadline = "2m"
    auto_revert       = true
    auto_promote      = false
  }
  group "till" {
    count = 2
    meta { kind = "till" }
    shutdown_delay = "10ms"
    network {
      port "http" { to = 8080 }
      port "metrics" { host_network = "lan" }
    }
    service {
      name         = "till"
      port         = "http"
      provider     = "nomad"
      tags         = ["a"]
      canary_tags  = ["c"]
      meta         { k = "v" }
      canary_meta  { k = "c" }
      check {
        name     = "up"
        type     = "tcp"
        port     = "HUBPORT"
        interval = "1s"
        timeout  = "1s"
      }
      check {
        name     = "answers"
        type     = "http"
        path     = "/v1/status/leader"
        port     = "HUBPORT"
        interval = "1s"
        timeout  = "1s"
      }
    }
    restart {
      attempts = 1
      delay    = "1s"
    }
    disconnect {
      lost_after = "1h"
      replace    = false
    }
    ephemeral_disk { size = 200 }
    scaling {
      min     = 1
      max     = 5
      policy { cooldown = "1m" }
    }
    task "main" {
      driver = "raw_exec"
      leader = true
      config {
        command = "/bin/sh"
        args    = ["-c", "echo hello from $NOMAD_ALLOC_NAME; echo wrong >&2; exec sleep 86400"]
      }
      env { VERSION = "1" }
      service {
        name     = "inner"
        provider = "nomad"
        port     = "HUBPORT"
        check {
          type     = "tcp"
          interval = "1s"
          timeout  = "1s"
        }
      }
      meta { m = "1" }
      kill_timeout   = "2s"
      kill_signal    = "SIGINT"
      shutdown_delay = "10ms"
      logs {
        max_files     = 3
        max_file_size = 2
      }
      resources {
        cpu        = 100
        memory     = 64
        memory_max = 128
      }
      action "greet" {
        command = "/bin/echo"
        args    = ["hi"]
      }
    }
    task "prepare" {
      driver = "raw_exec"
      lifecycle { hook = "prestart" }
      config { command = "/bin/true" }
      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}`

// idleJob has the remaining blocks that this release supports, and places no allocation.
const idleJob = `
job "idle" {
  update {
    canary       = 1
    auto_promote = true
  }
  group "g" {
    count = 0
    affinity {
      attribute = "${node.class}"
      value     = "till"
    }
    spread {
      attribute = "${node.datacenter}"
    }
    network {
      port "http" {
        static           = 17172
        ignore_collision = true
      }
    }
    disconnect {
      stop_on_client_after = "1h"
      replace              = true
      reconcile            = "best_score"
    }
    service {
      name     = "idle"
      provider = "nomad"
      port     = "http"
      address  = "192.0.2.1"
      task     = "main"
      check {
        type            = "http"
        name            = "up"
        path            = "/up"
        method          = "POST"
        protocol        = "https"
        body            = "hello"
        tls_server_name = "example.com"
        tls_skip_verify = true
        address_mode    = "host"
        notes           = "for people"
        interval        = "1s"
        timeout         = "1s"
        task            = "main"
        header { X-A = ["b"] }
        check_restart {
          limit           = 3
          grace           = "5s"
          ignore_warnings = true
        }
      }
      check {
        type                     = "grpc"
        grpc_service             = "till"
        grpc_use_tls             = true
        interval                 = "1s"
        timeout                  = "1s"
        initial_status           = "warning"
        success_before_passing   = 2
        failures_before_critical = 3
        failures_before_warning  = 2
      }
      check {
        type     = "script"
        command  = "/bin/true"
        args     = ["x"]
        interval = "1s"
        timeout  = "1s"
      }
      check_restart { limit = 2 }
    }
    task "main" {
      driver = "raw_exec"
      config { command = "/bin/true" }
      constraint {
        attribute = "${attr.kernel.name}"
        value     = "linux"
      }
      affinity {
        attribute = "${node.class}"
        value     = "till"
      }
      service {
        name     = "inner"
        provider = "nomad"
        port     = "http"
      }
      scaling "cpu" {
        min = 10
        max = 20
        policy { a = "b" }
      }
      resources {
        device "gpu" {
          count = 1
          constraint {
            attribute = "${device.vendor}"
            value     = "v"
          }
          affinity {
            attribute = "${device.vendor}"
            value     = "v"
          }
        }
      }
    }
    task "side" {
      driver = "raw_exec"
      lifecycle {
        hook    = "prestart"
        sidecar = true
      }
      config { command = "/bin/true" }
    }
  }
}`
