# A small service. "skerry job plan" shows what running it would change.
job "example" {
  datacenters = ["*"]
  type        = "service"

  # A new version is rolled out one by one; an edge that is away gets it when it is back.
  update {
    max_parallel     = 1
    health_check     = "task_states"
    min_healthy_time = "10s"
    auto_revert      = true
  }

  group "clock" {
    count = 1

    # What happens while its edge has no link: it goes on there, and nothing replaces it.
    disconnect {
      replace   = false
      reconcile = "keep_original"
    }

    task "tick" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do date; sleep 1; done"]
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
