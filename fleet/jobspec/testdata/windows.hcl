job "shop" {
  update {
    windows {
      cron      = "0 25 * * *"
      duration  = "0s"
      time_zone = "Mars/Olympus"
    }
  }
  group "night" {
    update {
      windows {
        cron     = "0 2 * * *"
        duration = "24h"
      }
      windows {
        cron     = "0 0 31 2 *"
        duration = "1h"
      }
      windows {
        duration = "1h"
      }
      windows {
        cron      = "30 1 * * 0"
        duration  = "2h"
        time_zone = "site"
      }
    }
    task "serve" {
      driver = "raw_exec"
    }
  }
  group "day" {
    task "serve" {
      driver = "raw_exec"
    }
  }
}
