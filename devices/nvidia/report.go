package nvidia

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"skerry/devices"
	"skerry/devices/sysfs"
)

// Bounds of a report.
const (
	maxGPUs      = 64
	maxInstances = 64      // of a GPU
	maxMinors    = 1 << 20 // bytes of the list of MIG capabilities
)

// report is the part of nvidia-smi's XML that is read. Its shape is that of nvsmi_device_v10 to v12.
type report struct {
	XMLName       xml.Name `xml:"nvidia_smi_log"`
	DriverVersion string   `xml:"driver_version"`
	GPUs          []gpu    `xml:"gpu"`
}

// memory is an amount of memory with its unit.
type memory struct {
	Total string `xml:"total"`
	Used  string `xml:"used"`
}

// power is the present and the greatest power draw of a GPU. Driver 535 renamed its element.
type power struct {
	Draw    string `xml:"power_draw"`
	Instant string `xml:"instant_power_draw"`
	Average string `xml:"average_power_draw"`
	Limit   string `xml:"power_limit"`
	Current string `xml:"current_power_limit"`
}

// gpu is one GPU.
type gpu struct {
	Name            string `xml:"product_name"`
	UUID            string `xml:"uuid"`
	Minor           string `xml:"minor_number"`
	DisplayMode     string `xml:"display_mode"`
	PersistenceMode string `xml:"persistence_mode"`
	RecoveryAction  string `xml:"gpu_recovery_action"`
	MIGMode         string `xml:"mig_mode>current_mig"`
	MIG             []mig  `xml:"mig_devices>mig_device"`
	BusID           string `xml:"pci>pci_bus_id"`
	LinkGen         string `xml:"pci>pci_gpu_link_info>pcie_gen>max_link_gen"`
	LinkWidth       string `xml:"pci>pci_gpu_link_info>link_widths>max_link_width"`
	Memory          memory `xml:"fb_memory_usage"`
	BAR1            memory `xml:"bar1_memory_usage"`
	CoresClock      string `xml:"max_clocks>graphics_clock"`
	MemoryClock     string `xml:"max_clocks>mem_clock"`
	OldPower        power  `xml:"power_readings"`
	NewPower        power  `xml:"gpu_power_readings"`
	GPUUse          string `xml:"utilization>gpu_util"`
	MemoryUse       string `xml:"utilization>memory_util"`
	EncoderUse      string `xml:"utilization>encoder_util"`
	DecoderUse      string `xml:"utilization>decoder_util"`
	Temperature     string `xml:"temperature>gpu_temp"`
}

// mig is one MIG instance of a GPU.
type mig struct {
	Index           string `xml:"index"`
	GPUInstance     string `xml:"gpu_instance_id"`
	ComputeInstance string `xml:"compute_instance_id"`
	Memory          memory `xml:"fb_memory_usage"`
}

// decodeReport decodes the output of nvidia-smi -q -x, and makes its texts printable.
func decodeReport(b []byte) (*report, error) {
	var r report
	if err := xml.NewDecoder(bytes.NewReader(b)).Decode(&r); err != nil {
		return nil, fmt.Errorf("decode the report of nvidia-smi: %w", err)
	}
	if len(r.GPUs) > maxGPUs {
		return nil, fmt.Errorf("decode the report of nvidia-smi: %d gpus, at most %d are supported", len(r.GPUs), maxGPUs)
	}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		g.UUID, g.Name, g.Minor = sysfs.Printable(g.UUID), sysfs.Printable(g.Name), sysfs.Printable(g.Minor)
		if g.UUID == "" || len(g.MIG) > maxInstances {
			return nil, fmt.Errorf("decode the report of nvidia-smi: gpu %d has no UUID, or more than %d instances", i, maxInstances)
		}
	}
	return &r, nil
}

// healthProblem returns why a GPU does not work, or "".
func (g *gpu) healthProblem() string {
	switch {
	case g.RecoveryAction != "" && g.RecoveryAction != "None" && g.RecoveryAction != "N/A":
		return "nvidia-smi asks for the action " + sysfs.Printable(g.RecoveryAction)
	case strings.Contains(g.Memory.Total, "lost") || strings.Contains(g.Memory.Total, "reset"):
		return sysfs.Printable(g.Memory.Total)
	}
	if _, err := strconv.ParseUint(g.Minor, 10, 16); err != nil {
		return "it has no device node"
	}
	return ""
}

// attributeMap returns the attributes of a GPU that have a value.
func (g *gpu) attributeMap(driver string) map[string]string {
	a := map[string]string{
		"driver_version": driver, "memory": g.Memory.Total, "bar1": g.BAR1.Total, "power": whole(cmp.Or(g.NewPower.Current, g.NewPower.Limit, g.OldPower.Limit)),
		"cores_clock": g.CoresClock, "memory_clock": g.MemoryClock, "pci_bandwidth": bandwidth(g.LinkGen, g.LinkWidth),
		"display_state": g.DisplayMode, "persistence_mode": g.PersistenceMode, "pci_bus_id": g.BusID,
	}
	for k, v := range a {
		if a[k] = sysfs.Printable(v); a[k] == "N/A" || strings.HasPrefix(a[k], "[") {
			a[k] = ""
		}
	}
	return sysfs.WithoutEmpty(a)
}

// number splits a value such as "65.20 W" into its number and its unit.
func number(text string) (value float64, unit string, ok bool) {
	digits, unit, _ := strings.Cut(strings.TrimSpace(text), " ")
	value, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, "", false
	}
	return value, unit, true
}

// whole returns a value without its fraction, as the plugin of Nomad has it.
func whole(text string) string {
	v, unit, ok := number(text)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.0f %s", v, unit)
}

// bandwidth returns the rate of a PCIe link of a generation and a width ("16x").
func bandwidth(generation, width string) string {
	perLane := map[string]int{"1": 250, "2": 500, "3": 985, "4": 1969, "5": 3938, "6": 7562}[strings.TrimSpace(generation)]
	lanes, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(width), "x"))
	if perLane == 0 || err != nil || lanes < 1 || lanes > 64 {
		return ""
	}
	return fmt.Sprintf("%d MB/s", perLane*lanes)
}

// currentMeasurements returns the present values of a GPU, by the names that Nomad's plugin gives them.
func (g *gpu) currentMeasurements() []devices.Measurement {
	var out []devices.Measurement
	add := func(name, now, most string, summary bool) {
		v, unit, ok := number(now)
		if !ok {
			return
		}
		limit, _, _ := number(most)
		out = append(out, devices.Measurement{Name: name, Unit: sysfs.Printable(unit), Value: v, Max: limit, Summary: summary})
	}
	add("Memory state", g.Memory.Used, g.Memory.Total, true)
	add("BAR1 buffer state", g.BAR1.Used, g.BAR1.Total, false)
	add("Power usage", cmp.Or(g.NewPower.Instant, g.NewPower.Draw, g.NewPower.Average, g.OldPower.Draw),
		cmp.Or(g.NewPower.Current, g.NewPower.Limit, g.OldPower.Limit), false)
	add("GPU utilization", g.GPUUse, "", false)
	add("Memory utilization", g.MemoryUse, "", false)
	add("Encoder utilization", g.EncoderUse, "", false)
	add("Decoder utilization", g.DecoderUse, "", false)
	add("Temperature", g.Temperature, "", false)
	return out
}

// readLines returns the lines of a file of bounded size.
func readLines(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMinors+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxMinors {
		return nil, errors.New("it is too large")
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n"), nil
}
