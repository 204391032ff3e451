// Package validate builds the manifests with kustomize and checks them against
// the schema of the Kubernetes API, as kubectl-validate does. It is a module of
// its own, so that the simulator does not depend on Kubernetes.
package validate

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kubectl-validate/pkg/openapiclient"
	"sigs.k8s.io/kubectl-validate/pkg/validator"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// versions are those whose schema the manifests must fit: the first with stable
// backoffLimitPerIndex's schema, and the newest that the validator has.
var versions = []string{"1.29", "1.30"}

var kustomizations = []string{"../base", "../merge", "../examples/capacity-32"}

// build is the objects of a kustomization, as YAML.
func build(t *testing.T, dir string) [][]byte {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	var out [][]byte
	for _, o := range objects.Resources() {
		text, err := o.AsYAML()
		require.NoError(t, err)
		out = append(out, text)
	}
	require.NotEmpty(t, out)
	return out
}

func validatorFor(t *testing.T, version string) *validator.Validator {
	v, err := validator.New(openapiclient.NewHardcodedBuiltins(version))
	require.NoError(t, err)
	return v
}

func validate(v *validator.Validator, object []byte) error {
	_, parsed, err := v.Parse(object)
	if err != nil {
		return err
	}
	return v.Validate(parsed)
}

// Every object fits the API's schema: no field that it does not know, none of the
// wrong type, none missing.
func TestSchema(t *testing.T) {
	for _, version := range versions {
		v := validatorFor(t, version)
		for _, dir := range kustomizations {
			for _, object := range build(t, dir) {
				require.NoError(t, validate(v, object), "%s, Kubernetes %s:\n%s", dir, version, object)
			}
		}
	}
}

// The validator finds what is wrong.
func TestSchemaFindsMistakes(t *testing.T) {
	v := validatorFor(t, versions[0])
	for _, dir := range kustomizations {
		for _, object := range build(t, dir) {
			if !strings.Contains(string(object), "kind: Job") {
				continue
			}
			for _, change := range [][2]string{
				{"completions: ", "completion: "}, {"  backoffLimit", "  backofLimit"}, {"restartPolicy: Never", "restartPolicy: [Never]"},
				{"image: ", "imagee: "}, {"runAsUser: 65532", `runAsUser: "65532"`},
			} {
				changed := strings.Replace(string(object), change[0], change[1], 1)
				require.NotEqual(t, string(object), changed)
				require.Error(t, validate(v, []byte(changed)), change[1])
			}
		}
	}
}

// eachJob calls f for every Job, with the directory that it is built from.
func eachJob(t *testing.T, f func(dir string, job *batchv1.Job)) {
	for _, dir := range kustomizations {
		for _, object := range build(t, dir) {
			var job batchv1.Job
			if !strings.Contains(string(object), "kind: Job") {
				continue
			}
			require.NoError(t, yaml.UnmarshalStrict(object, &job))
			f(dir, &job)
		}
	}
}

// What the schema cannot say: the sweep knows its number of shards, runs with
// --resume, one pod an index, and can write nowhere but to the results.
func TestJobs(t *testing.T) {
	eachJob(t, func(dir string, job *batchv1.Job) {
		pod := job.Spec.Template.Spec
		require.Len(t, pod.Containers, 1)
		sim := pod.Containers[0]
		require.True(t, *sim.SecurityContext.ReadOnlyRootFilesystem)
		require.True(t, *pod.SecurityContext.RunAsNonRoot)
		require.Equal(t, corev1.RestartPolicyNever, pod.RestartPolicy)
		require.Contains(t, sim.VolumeMounts, corev1.VolumeMount{Name: "results", MountPath: "/results"})
		if *job.Spec.Completions == 1 {
			require.Contains(t, sim.Args, "merge")
			return
		}
		require.Equal(t, batchv1.IndexedCompletion, *job.Spec.CompletionMode)
		require.LessOrEqual(t, *job.Spec.Parallelism, *job.Spec.Completions)
		require.Contains(t, sim.Args, "--resume")
		require.Contains(t, sim.Env, corev1.EnvVar{Name: "JOB_COMPLETIONS", Value: strconv.Itoa(int(*job.Spec.Completions))},
			"%s: JOB_COMPLETIONS must equal spec.completions", dir)
	})
}

// The manifests name flags that sim has.
func TestFlags(t *testing.T) {
	source, err := os.ReadFile("../../../cmd/sim/sweep.go")
	require.NoError(t, err)
	eachJob(t, func(_ string, job *batchv1.Job) {
		for _, arg := range job.Spec.Template.Spec.Containers[0].Args {
			if name, ok := strings.CutPrefix(arg, "--"); ok {
				name, _, _ = strings.Cut(name, "=")
				require.Contains(t, string(source), `, "`+name+`", `)
			}
		}
	})
}
