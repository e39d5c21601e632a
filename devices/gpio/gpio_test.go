package gpio_test

import (
	"reflect"
	"testing"

	"skerry/devices"
	"skerry/devices/devicetest"
	"skerry/devices/gpio"
	"skerry/devices/sysfs"
	"skerry/fleet"
)

// mustRoots makes a board with a chip that the older interface describes too, and an extender with two chips.
func mustRoots(tb testing.TB) sysfs.Roots {
	tb.Helper()
	const soc, extender = "devices/platform/soc/fe200000.gpio", "devices/platform/soc/i2c-1/1-0020"
	return sysfs.Roots{
		Sys: devicetest.MustTree(tb, map[string]string{
			soc + "/gpiochip0/dev": "254:0\n", soc + "/gpio/gpiochip512/label": "pinctrl-bcm2711\n", soc + "/gpio/gpiochip512/ngpio": "58\n",
			soc + "/driver":             "-> ../../../../bus/platform/drivers/pinctrl-bcm2835",
			soc + "/of_node/compatible": "brcm,bcm2711-gpio\x00",
			extender + "/gpiochip2/dev": "254:2\n", extender + "/gpiochip10/dev": "254:10\n",
			"bus/gpio/devices/gpiochip0":  "-> ../../../" + soc + "/gpiochip0",
			"bus/gpio/devices/gpiochip2":  "-> ../../../" + extender + "/gpiochip2",
			"bus/gpio/devices/gpiochip10": "-> ../../../" + extender + "/gpiochip10",
		}),
		Dev: devicetest.MustTree(tb, map[string]string{"gpiochip0": "", "gpiochip2": "", "gpiochip10": ""}),
	}
}

func TestConformance(t *testing.T) {
	roots := mustRoots(t)
	devicetest.Run(t, func(testing.TB) devices.Finder { return gpio.New(roots) })
}

// TestOnThisMachine reads the devices of the machine that runs the test.
func TestOnThisMachine(t *testing.T) { devicetest.RunOnMachine(t, gpio.New(sysfs.Roots{})) }

func TestFind(t *testing.T) {
	roots := mustRoots(t)
	found, err := gpio.New(roots).Find(t.Context())
	want := []fleet.Device{
		{Kind: "gpio", Vendor: "gpio", Type: "gpio", Name: "1-0020", ID: "1-0020", Attributes: map[string]string{}},
		{Kind: "gpio", Vendor: "gpio", Type: "gpio", Name: "1-0020", ID: "1-0020#1", Attributes: map[string]string{}},
		{Kind: "gpio", Vendor: "pinctrl-bcm2835", Type: "gpio", Name: "pinctrl-bcm2711", ID: "fe200000.gpio", Attributes: map[string]string{
			"driver": "pinctrl-bcm2835", "compatible": "brcm,bcm2711-gpio", "label": "pinctrl-bcm2711", "lines": "58",
		}},
	}
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("%+v, %v, want %+v", found, err, want)
	}
	r, err := gpio.New(roots).Reserve(t.Context(), []string{"1-0020#1"})
	if err != nil || r.Env["GPIO_DEVICE_PATHS"] != "/dev/gpiochip10" {
		t.Errorf("reserved %+v, %v, want the second chip of the extender", r, err)
	}
}
