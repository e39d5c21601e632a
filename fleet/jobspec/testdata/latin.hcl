job "café" {
group "g" { 
 task "t" {
 driver="raw_exec"
 config {
 command="/bin/sleep"
 args=["1"]
 }
 }
 }
}
