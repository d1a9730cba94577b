package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// AMQPVariable names a RabbitMQ that is to be used in place of one started here: an AMQP URL.
const AMQPVariable = "WATERMILL_INBOX_AMQP_URL"

var rabbitmq = kind{
	name:             "rabbitmq",
	variable:         AMQPVariable,
	control:          "WATERMILL_INBOX_RABBITMQCTL",
	debian:           "rabbitmq-server",
	url:              rabbitURL,
	ping:             pingRabbit,
	local:            localRabbit,
	containerControl: []string{"rabbitmq", "rabbitmqctl"},
}

// The scripts in /usr/sbin insist on the distribution's own paths, these take all of them from the environment.
const rabbitScripts = "/usr/lib/rabbitmq/bin"

func rabbitURL(port int) string { return fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", port) }

func pingRabbit(_ context.Context, url string) error {
	connection, err := amqp.DialConfig(url, amqp.Config{Dial: amqp.DefaultDial(5 * time.Second)})
	if err != nil {
		return err
	}
	_, err = connection.Channel()
	return errors.Join(err, connection.Close())
}

func localRabbit(dir string) (*node, error) {
	script := filepath.Join(rabbitScripts, "rabbitmq-server")
	epmd, err := exec.LookPath("epmd")
	if _, missing := os.Stat(script); err != nil || missing != nil {
		return nil, errMissing
	}
	user, err := serverAccount("rabbitmq")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	amqpPort, distPort, epmdPort := ports[0], ports[1], ports[2]
	if err := user.own(dir); err != nil {
		return nil, err
	}
	config, plugins := filepath.Join(dir, "rabbitmq.conf"), filepath.Join(dir, "enabled_plugins")
	listen := fmt.Sprintf("listeners.tcp.1 = 127.0.0.1:%d\n", amqpPort)
	if err := errors.Join(os.WriteFile(config, []byte(listen), 0o644), os.WriteFile(plugins, []byte("[].\n"), 0o644)); err != nil {
		return nil, err
	}

	base := command{directory: dir, account: user, variables: []string{
		"PATH=" + systemPath, "LC_ALL=C.UTF-8",
		"HOME=" + dir, // holds the Erlang cookie
		fmt.Sprintf("ERL_EPMD_PORT=%d", epmdPort), "ERL_EPMD_ADDRESS=127.0.0.1",
		fmt.Sprintf("RABBITMQ_NODENAME=watermill-inbox-%d@localhost", amqpPort),
		fmt.Sprintf("RABBITMQ_DIST_PORT=%d", distPort),
		"RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_CONFIG_FILE=" + config,
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + plugins,
		"RABBITMQ_MNESIA_BASE=" + filepath.Join(dir, "mnesia"),
		"RABBITMQ_SCHEMA_DIR=" + filepath.Join(dir, "schema"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + filepath.Join(dir, "config"),
		"RABBITMQ_LOG_BASE=" + dir,
		"RABBITMQ_LOGS=-", // to the file that takes what it prints
		"RABBITMQ_PID_FILE=" + filepath.Join(dir, "pid"),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CTL_ERL_ARGS=-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
	}}

	// Started by a node, the name server epmd would detach and outlive it. Started here, it has an owner.
	names := base
	names.path = epmd
	names.stopSignal, names.crashSignal, names.deathSignal = syscall.SIGTERM, syscall.SIGKILL, syscall.SIGKILL

	// The script waits for the node and turns SIGTERM into its clean end.
	server := base
	server.path = script
	server.stopSignal, server.crashSignal, server.deathSignal = syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM

	control := base
	control.path = filepath.Join(rabbitScripts, "rabbitmqctl")
	control.variables = slices.Clone(base.variables)
	path, err := writeControl(dir, "rabbitmqctl", control.script())
	if err != nil {
		return nil, err
	}
	return &node{
		url: rabbitURL(amqpPort), control: path, log: filepath.Join(dir, "server.log"),
		run: []command{names, server},
	}, nil
}
