job "v" {
  meta {
    x = var.nope
    y = vars.z
    z = upper("a", "b")
  }
  group "g" {
    dynamic "tsk" {
      for_each = [1]
      content {}
    }
    dynamic "task" {
      for_each = 5
      content {}
    }
    dynamic "task" {
      content {}
    }
  }
}
