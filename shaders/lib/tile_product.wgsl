        // The product of a 64 x 16 and a 16 x 64 tile in workgroup memory, 4 x 4 results per thread; one right tile per
        // side.
{% for q in range(4) %}
        {
{% for side in sides %}
{% for j in range(4) %}
            let b{{ side }}{{ j }} = right{{ side }}[{{ (q * 4 + j) * 16 }}u + tx];
{% endfor %}
{% endfor %}
{% for i in range(4) %}
            let a{{ i }} = left[(ty * 4u + {{ i }}u) * 5u + {{ q }}u];
{% for side in sides %}
            acc{{ side }}{{ i }} += a{{ i }}.x * b{{ side }}0 + a{{ i }}.y * b{{ side }}1 + a{{ i }}.z * b{{ side }}2 + a{{ i }}.w * b{{ side }}3;
{% endfor %}
{% endfor %}
        }
{% endfor %}
